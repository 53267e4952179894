import "./look/tokens.css";
import "./look/base.css";

import { createApp } from "vue";

import App from "./App.vue";
import { listenToBrowser } from "./api/live";
import { look } from "./api/session";
import { told } from "./api/http";
import { applyScheme } from "./parts/schemes";
import { complain } from "./parts/toasts";
import { router } from "./router";

applyScheme();
listenToBrowser();
await look().catch((why: unknown) => complain(told(why)));
createApp(App).use(router).mount("#app");
