"""Presets, configuration and downloads: from a name to all that an engine needs.

In: names, files, options, environment. Out: a configuration that says where each value comes from; loaded models.
"""
