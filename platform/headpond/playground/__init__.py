"""The playground: a page for people, built from what is served."""
