"""Pages: a store as one page of HTML, written or served, and the report of a comparison."""
