"""From a name to everything an engine needs: presets, and the assembly of their parts."""
