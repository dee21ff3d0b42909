"""What all else rests on: answers as data, events, errors, pictures, settings. Imports no other room."""
