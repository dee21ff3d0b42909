"""The weights of the `mini` preset: data only. The world they were trained in is :mod:`codevqa.miniworld`."""
