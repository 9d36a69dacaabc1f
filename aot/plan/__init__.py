"""Plans: from manifests and targets to the variants of each bundle."""
