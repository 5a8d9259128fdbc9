"""An application whose agent works in a sandbox for each conversation."""
