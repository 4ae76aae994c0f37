"""State rows changed: edits, migrations, functions over them."""
