"""The build side: manifests in, verified cubin bundles out."""
