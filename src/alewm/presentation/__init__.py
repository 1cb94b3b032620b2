"""How results look: the themes of figures, and tables that know the commands behind their cells."""
