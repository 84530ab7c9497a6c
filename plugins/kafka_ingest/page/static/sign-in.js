// Airflow 3.1.0 keeps the login where only its own scripts find it, and sends no cookie. This hands the login to the page,
// for the page's address alone, and asks again, once. Later versions keep it in a cookie that no script can read.
"use strict";
(() => {
  const token = localStorage.getItem("token");
  const asked = `kafka-ingest ${token}`;
  if (!token || sessionStorage.getItem("signed in") === asked) {
    return;
  }
  sessionStorage.setItem("signed in", asked);
  const path = document.currentScript.src.replace(/static\/sign-in\.js.*$/, "");
  document.cookie = `_token=${token}; path=${new URL(path).pathname}; samesite=strict${location.protocol === "https:" ? "; secure" : ""}`;
  location.reload();
})();
