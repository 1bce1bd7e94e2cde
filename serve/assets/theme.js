// Sets the theme that was chosen before the page is drawn, so that it does not change while it is looked at.
try {
  const theme = localStorage.getItem("ksmith-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage the system's theme holds.
}
