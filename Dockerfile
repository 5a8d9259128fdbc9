# sandboxd in a container. `scripts/image.sh` prepares what is copied here and builds it.
#
# The programs need nothing of the base: by default it is empty, and so the image has no shell.
ARG BASE=scratch
FROM ${BASE}
COPY root/ /
# The state and the workspaces are to be volumes, or directories of the host: the daemon finds
# out what the engine calls them, and does not start where a sandbox could not be given them.
# The sockets of sandboxes lie beside the state, since they have to be on a volume as well.
ENV SANDBOXD_HOST=0.0.0.0 \
    SANDBOXD_STATE_DIR=/var/lib/sandboxd/state \
    SANDBOXD_RUNTIME_DIR=/var/lib/sandboxd/run \
    SANDBOXD_WORKSPACE_ROOT=/workspaces
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=10s --start-period=40s CMD ["/usr/bin/sandboxctl", "health"]
ENTRYPOINT ["/usr/bin/sandboxd"]
