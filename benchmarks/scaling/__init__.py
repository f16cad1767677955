"""What very many images would cost, from what was measured."""
