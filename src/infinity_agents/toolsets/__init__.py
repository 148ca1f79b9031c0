"""The bundled tool servers: what each of them can do; where it runs is not their concern."""
