# Debian 12 has the headless Java 17 that Spark runs on. A tag can be moved, a digest cannot: docs/code/dependencies.md
# says how it is added (@sha256:…).
ARG BASE_IMAGE=docker.io/library/python:3.11.14-slim-bookworm

# --- an environment with the packages of uv.lock ---------------------------------------------------------------------
FROM ${BASE_IMAGE} AS environment

WORKDIR /source
COPY scripts/uv.txt ./
RUN pip install --no-cache-dir --require-hashes -r uv.txt

ENV UV_PROJECT_ENVIRONMENT=/opt/destination-datalake \
    UV_PYTHON_DOWNLOADS=never \
    UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
    UV_NO_CACHE=1

# Dependencies are a layer of their own, which changes of the connector's code do not rebuild.
COPY pyproject.toml uv.lock ./
RUN uv sync --frozen --no-dev --no-install-project --compile-bytecode

# The native library. Its compiler, which uv.lock pins too, is in a temporary environment.
COPY native ./native
RUN mkdir -p destination_datalake/records \
    && uv run --isolated --frozen --only-group native native/build.sh python \
           destination_datalake/_native.x86_64.so destination_datalake/_native.aarch64.so

COPY README.md LICENSE ./
COPY destination_datalake ./destination_datalake
RUN uv sync --frozen --no-dev --no-editable --compile-bytecode

# What is in it, with hashes: a software bill of materials.
RUN mkdir -p /opt/destination-datalake/share/destination-datalake \
    && uv export --no-cache --quiet --frozen --no-dev --format cyclonedx1.5 --preview-features sbom-export \
           --output-file /opt/destination-datalake/share/destination-datalake/sbom.cdx.json

# A third of it is not needed: image/unneeded.txt lists what, and why.
COPY image ./image
RUN python image/trim.py /opt/destination-datalake/lib/python3.11/site-packages

# --- the image ------------------------------------------------------------------------------------------------------
FROM ${BASE_IMAGE}

RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*

# The base image has no byte code of Python's standard library: each start would compile it, for a second.
RUN python -m compileall -q -x '/(test|tests|site-packages|dist-packages|idlelib|tkinter|turtledemo|ensurepip|lib2to3)/' \
        "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"

RUN groupadd --gid 1000 airbyte \
    && useradd --uid 1000 --gid airbyte --home-dir /airbyte --create-home airbyte \
    && mkdir /airbyte/work \
    && chown airbyte:airbyte /airbyte /airbyte/work

COPY --from=environment /opt/destination-datalake /opt/destination-datalake

# With a class-data-sharing archive Spark starts in half the time. An archive fits only the Java and jars that it was
# made with, so it is made here.
RUN /opt/destination-datalake/bin/python -m destination_datalake.spark.classic.jvm_archive

# As numbers: with `runAsNonRoot` Kubernetes accepts no user name.
USER 1000:1000
WORKDIR /airbyte/work

# The platform starts the connector by this variable, from another directory: an absolute path, equal to ENTRYPOINT.
ENV AIRBYTE_ENTRYPOINT="/opt/destination-datalake/bin/destination-datalake"
ENTRYPOINT ["/opt/destination-datalake/bin/destination-datalake"]

LABEL io.airbyte.name="destination-datalake"
LABEL io.airbyte.version="0.1.0"
