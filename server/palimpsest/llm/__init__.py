"""Language models, and the stages that call them.

A stage is a prompt, a reply model and one function. The function returns a value and writes nothing.
"""
