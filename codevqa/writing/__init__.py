"""Where programs come from: in-context examples, the prompt, the model's reply, random worlds to choose in.

In: a question and a language model. Out: a program, and what each of several drafts is worth.
"""
