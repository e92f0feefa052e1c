# Cutaway with the CPU build of PyTorch:
#   docker build -t cutaway . && docker run --rm -v "$PWD:/work" cutaway train lenet5-modern digits
# With CUDA, on a host with the NVIDIA container toolkit:
#   docker build --build-arg TORCH_INDEX= -t cutaway . && docker run --rm --gpus all cutaway check resnet18 digits
FROM python:3.11-slim

# PyTorch's CPU build has the version 2.13.0+cpu there, which pip prefers to PyPI's CUDA build 2.13.0.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=all

WORKDIR /opt/cutaway
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src ./src
RUN PIP_EXTRA_INDEX_URL="$TORCH_INDEX" pip install --no-cache-dir --constraint constraints.txt ".[$EXTRAS]"

# Data, runs and pages are in /work. Nothing needs root.
RUN useradd --create-home cutaway && install --directory --owner=cutaway /work
USER cutaway
WORKDIR /work
EXPOSE 8000
ENTRYPOINT ["cutaway"]
CMD ["--help"]
