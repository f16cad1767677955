// A page that is complete as it is: light or dark is all that can be chosen.

followTheme(find("theme"), () => {});
document.documentElement.dataset.ready = "yes";
