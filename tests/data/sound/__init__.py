"""Tests of sounds."""
