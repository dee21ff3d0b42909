"""Programs and where they come from: the writer, and the linter of the prompt sets it draws on."""
