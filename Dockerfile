# Two images from one file. Not built where this was written (no Docker engine there); a test holds it to the tree.
#   docker build --target cpu -t cosyvoice-studio:cpu .
#   docker build --target gpu -t cosyvoice-studio:gpu .     run with: docker run --gpus all ...
FROM python:3.11-slim-bookworm AS base
# libnuma1: vLLM on a CPU loads it. ffmpeg: m4a, aac and webm clips.
RUN apt-get update \
 && apt-get install -y --no-install-recommends libnuma1 ffmpeg \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 1000 studio \
 && install -d -o studio -g studio /studio /data /models
WORKDIR /studio
USER studio
ENV PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1
# What the installation reads, and no more, so that a change of the code does not repeat it.
COPY --chown=studio:studio pyproject.toml requirements.txt requirements-cpu.lock LICENSE README.md ./
COPY --chown=studio:studio studio/__init__.py studio/
COPY --chown=studio:studio studio/setup studio/setup

FROM base AS cpu-set
RUN python3 -m studio.setup --venv .venv --device cpu

FROM base AS gpu-set
# Triton and flashinfer compile kernels on first use, so the GPU image keeps a compiler.
USER root
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc g++ libc6-dev \
 && rm -rf /var/lib/apt/lists/*
USER studio
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
RUN python3 -m studio.setup --venv .venv --device cuda

FROM cpu-set AS cpu
COPY --chown=studio:studio app.py ./
COPY --chown=studio:studio assets assets
COPY --chown=studio:studio studio studio
ENV STUDIO_HOST=0.0.0.0 STUDIO_PORT=7860 STUDIO_DATA_DIR=/data STUDIO_DEVICE=cpu
VOLUME ["/data", "/models"]
EXPOSE 7860
# The page answers within seconds, the engine within a minute or two; /health is 503 once the engine is lost.
HEALTHCHECK --interval=15s --timeout=5s --start-period=300s --retries=4 \
  CMD [".venv/bin/python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:7860/health', timeout=4)"]
CMD [".venv/bin/python", "app.py"]

FROM gpu-set AS gpu
COPY --chown=studio:studio app.py ./
COPY --chown=studio:studio assets assets
COPY --chown=studio:studio studio studio
ENV STUDIO_HOST=0.0.0.0 STUDIO_PORT=7860 STUDIO_DATA_DIR=/data STUDIO_DEVICE=cuda
VOLUME ["/data", "/models"]
EXPOSE 7860
HEALTHCHECK --interval=15s --timeout=5s --start-period=300s --retries=4 \
  CMD [".venv/bin/python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:7860/health', timeout=4)"]
CMD [".venv/bin/python", "app.py"]
