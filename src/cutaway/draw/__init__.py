"""Drawing modules in JavaScript, the descriptions that they draw, and the HTML page that contains both."""
