# docker build -f deploy/images/cpu.Dockerfile -t twoshift:0.1.0 .
# Weights are not in the image: they come from a registry, a bucket or a volume.
FROM python:3.12-slim-bookworm AS build
ARG EXTRAS=encoder,fleet,grpc,otel,postgres,s3
ARG PACKAGES=
WORKDIR /build
COPY . .
RUN sh deploy/images/install.sh /opt/twoshift "$EXTRAS" "$PACKAGES"

FROM python:3.12-slim-bookworm
# libgomp1: LightGBM; tini: SIGTERM ends a program that has no handler yet, which the first process would ignore
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 tini \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 twoshift \
    && useradd --uid 10001 --gid 10001 --home-dir /var/lib/twoshift --create-home --shell /usr/sbin/nologin twoshift
COPY --from=build /opt/twoshift /opt/twoshift
ENV PATH=/opt/twoshift/bin:$PATH \
    HOME=/var/lib/twoshift \
    TWOSHIFT_HOME=/var/lib/twoshift \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /var/lib/twoshift
VOLUME /var/lib/twoshift /tmp
EXPOSE 8000 8001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m --start-interval=2s --retries=3 \
    CMD ["python", "/opt/twoshift/healthcheck.py", "http://127.0.0.1:8000/readyz"]
ENTRYPOINT ["tini", "--", "twoshift"]
CMD ["serve", "--config", "/etc/twoshift/twoshift.toml", "--host", "0.0.0.0", "--port", "8000"]
