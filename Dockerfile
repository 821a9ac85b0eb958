# syntax=docker/dockerfile:1
# A server of models, without a compiler and without CUDA:
#
#   docker build -t bertwright .
#   docker run -p 8000:8000 -v "$PWD/model:/models/model:ro" bertwright
#
# Arguments of `docker run` replace `serve --host 0.0.0.0 /models/model`.
# BASE_IMAGE is any Debian with Python 3.11 or newer and its venv module.
ARG BASE_IMAGE=python:3.12-slim-bookworm

# hadolint ignore=DL3006
FROM ${BASE_IMAGE} AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /source
# PyTorch first: its layer stays when only our own code changes.
COPY constraints.txt ./
RUN python3 -m venv /opt/bertwright \
    && /opt/bertwright/bin/pip install --no-cache-dir --no-compile --index-url "${TORCH_INDEX}" \
        "$(grep '^torch==' constraints.txt)"
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/bertwright/bin/pip install --no-cache-dir --no-compile --constraint constraints.txt \
        '.[serve]' \
    # What only a compiler, a test or Arrow's own servers need.
    && rm -rf /opt/bertwright/lib/python3*/site-packages/torch/include \
        /opt/bertwright/lib/python3*/site-packages/torch/bin \
        /opt/bertwright/lib/python3*/site-packages/torch/test \
        /opt/bertwright/lib/python3*/site-packages/pyarrow/include \
        /opt/bertwright/lib/python3*/site-packages/pyarrow/*flight* \
    && find /opt/bertwright -type d -name tests -prune -exec rm -rf {} + \
    && find /opt/bertwright -type d -name __pycache__ -prune -exec rm -rf {} + \
    && /opt/bertwright/bin/pip uninstall --yes --quiet pip \
    && mkdir /models

# hadolint ignore=DL3006
FROM ${BASE_IMAGE}
RUN useradd --system --uid 10001 --create-home bertwright
COPY --from=build /opt/bertwright /opt/bertwright
COPY --from=build /models /models
ENV PATH=/opt/bertwright/bin:$PATH \
    PYTHONUNBUFFERED=1
USER 10001
WORKDIR /models
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python3", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["bertwright"]
CMD ["serve", "--host", "0.0.0.0", "/models/model"]
