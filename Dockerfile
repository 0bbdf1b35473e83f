# syntax=docker/dockerfile:1
# The program turnwise in a small image.
#
#   docker build -t turnwise .                          # CPU
#   docker build -t turnwise:cuda --build-arg DEVICE=cuda .
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" turnwise quickstart
#   docker run --rm --gpus all --user "$(id -u):$(id -g)" -v "$PWD:/work" turnwise:cuda train CONFIG policy.device=cuda

# cpu or cuda: the stage below that the final image is made from.
ARG DEVICE=cpu

# The Rust version is that of rust-toolchain.toml. Debian 12, whose glibc is older than that of both final images.
FROM rust:1.95.0-bookworm AS build
ARG DEVICE
ARG FEATURES=hub,remote,serve
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    if [ "$DEVICE" = cuda ]; then FEATURES="$FEATURES,cuda"; fi \
    && cargo build --release --locked -p turnwise-cli --features "$FEATURES" \
    && cp target/release/turnwise /turnwise

FROM debian:bookworm-slim AS cpu

# Has cuBLAS and NVRTC, which the program loads when it starts; the driver comes from the host.
FROM nvidia/cuda:12.8.1-runtime-ubuntu24.04 AS cuda

# hadolint ignore=DL3006
FROM ${DEVICE}
COPY --from=build /turnwise /usr/local/bin/turnwise
RUN groupadd --gid 10001 turnwise \
    && useradd --uid 10001 --gid turnwise --create-home turnwise \
    && mkdir /work && chown turnwise:turnwise /work
USER 10001:10001
WORKDIR /work
ENTRYPOINT ["turnwise"]
CMD ["--help"]
