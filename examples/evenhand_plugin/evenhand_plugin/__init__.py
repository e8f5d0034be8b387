"""A plug-in package for Evenhand: one small thing of every kind."""
