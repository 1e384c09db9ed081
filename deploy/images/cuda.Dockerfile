# docker build -f deploy/images/cuda.Dockerfile -t twoshift-cuda:0.1.0 .
# For language models: --build-arg PACKAGES=vllm
# PyTorch's packages have their CUDA libraries with them; the base has what the driver of the node is found by.
FROM nvidia/cuda:12.8.1-base-ubuntu24.04 AS build
ARG EXTRAS=torch,fleet,grpc,otel,postgres,s3
ARG PACKAGES=
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY . .
RUN sh deploy/images/install.sh /opt/twoshift "$EXTRAS" "$PACKAGES"

FROM nvidia/cuda:12.8.1-base-ubuntu24.04
# gcc and python3-dev: Triton compiles the launchers of its kernels when they are first used; tini: as in cpu.Dockerfile
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev libgomp1 python3 python3-dev tini \
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
HEALTHCHECK --interval=10s --timeout=5s --start-period=30m --start-interval=2s --retries=3 \
    CMD ["python", "/opt/twoshift/healthcheck.py", "http://127.0.0.1:8000/readyz"]
ENTRYPOINT ["tini", "--", "twoshift"]
CMD ["serve", "--config", "/etc/twoshift/twoshift.toml", "--host", "0.0.0.0", "--port", "8000"]
