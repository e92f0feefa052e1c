"""Tests of videos."""
