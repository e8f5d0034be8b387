"""Human ratings: export blind rating sheets, import means and agreement."""
