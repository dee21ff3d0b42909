"""LAVIS as a back end, in an environment and in processes of its own."""
