"""One file per dataset: readers of official layouts, of one's own images, and sets made without download."""
