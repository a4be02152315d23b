# Builds the one binary and puts it on an image without shell or package manager.
# Settings come from the environment (TOOLGATE__SECTION__KEY) or a mounted file; see docs/OPERATIONS.md.
FROM rust:1.95-slim-bookworm AS build
# The image has this toolchain already; without the line rustup would fetch the lint components of rust-toolchain.toml.
ENV RUSTUP_TOOLCHAIN=1.95.0
WORKDIR /src
COPY . .
# The C compiler of the image builds SQLite and ring; no system library is linked but libc.
RUN cargo build --release --locked --package toolgate-cli --features tokenizers \
    && mkdir /data

# Holds libc, libgcc, time zones and the CA bundle that HTTPS to models and tools is checked against.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/release/toolgate /usr/local/bin/toolgate
COPY --from=build --chown=nonroot:nonroot /data /data
ENV TOOLGATE__SERVER__BIND=0.0.0.0:8420 \
    TOOLGATE__STORAGE__DATA_DIR=/data
VOLUME /data
EXPOSE 8420
# SIGTERM starts the drain; give it more than `server.drain_ms` before SIGKILL.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=20s CMD ["/usr/local/bin/toolgate", "health"]
ENTRYPOINT ["/usr/local/bin/toolgate"]
CMD ["serve"]
