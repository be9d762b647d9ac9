"""Programs for maintainers; nothing that runs in production imports them."""
