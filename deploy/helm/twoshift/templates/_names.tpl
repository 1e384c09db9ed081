{{- define "twoshift.name" -}}
{{- printf "%s" .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{- define "twoshift.selector" -}}
app.kubernetes.io/name: twoshift
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "twoshift.labels" -}}
{{ include "twoshift.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "twoshift.secret" -}}
{{- .Values.existingSecret | default (printf "%s-config" (include "twoshift.name" .)) -}}
{{- end -}}

{{- define "twoshift.tolerations" -}}
{{- with .Values.tolerations }}
{{ toYaml . }}
{{- end }}
{{- if .Values.gpus }}
- {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}
{{- end }}
{{- if .Values.spot }}
- {key: cloud.google.com/gke-spot, operator: Equal, value: "true", effect: NoSchedule}
- {key: kubernetes.azure.com/scalesetpriority, operator: Equal, value: spot, effect: NoSchedule}
- {key: karpenter.sh/capacity-type, operator: Equal, value: spot, effect: NoSchedule}
{{- end }}
{{- end -}}

{{/* Series of this release only: the Service's name is the job of its scrapes. */}}
{{- define "twoshift.series" -}}
namespace="{{ .Release.Namespace }}",service="{{ include "twoshift.name" . }}"
{{- end -}}

{{/* Of probes, which do not verify the certificate. */}}
{{- define "twoshift.scheme" -}}
{{- if .Values.tls.secret }}, scheme: HTTPS{{ end -}}
{{- end -}}
