"""What all rooms share: answers and traces as data, events, errors, pictures, settings, and what questions want.

In: nothing from another room. Out: frozen data and plain functions of them. (Saving an answer loads pages.)
"""
