// The pages and their addresses. Every page but the first two is fetched when it is first gone to.

import { createRouter, createWebHistory, type RouteRecordRaw } from "vue-router";

import { isSignedIn, person } from "./api/session";
import SignIn from "./pages/SignIn.vue";
import { words } from "./words";

declare module "vue-router" {
  interface RouteMeta {
    title?: string;
    /** Shown without the frame of menus. */
    bare?: boolean;
    /** For people who are not signed in. */
    open?: boolean;
  }
}

const routes: RouteRecordRaw[] = [
  { path: "/", name: "overview", component: () => import("./pages/overview/OverviewPage.vue"), meta: { title: words.nav.overview } },
  { path: "/sign-in", name: "sign-in", component: SignIn, meta: { title: words.signIn.title, bare: true, open: true } },
  { path: "/password", name: "password", component: () => import("./pages/NewPassword.vue"), meta: { title: words.signIn.newTitle, bare: true } },
  { path: "/hosts", name: "hosts", component: () => import("./pages/hosts/HostList.vue"), meta: { title: words.nav.hosts } },
  { path: "/hosts/:name/:tab?", name: "host", component: () => import("./pages/hosts/HostPage.vue"), props: true, meta: { title: words.nav.hosts } },
  { path: "/settings", name: "settings", component: () => import("./pages/settings/SettingsPage.vue"), meta: { title: words.nav.settings } },
  { path: "/users", name: "users", component: () => import("./pages/users/UserList.vue"), meta: { title: words.nav.users } },
  { path: "/users/:name/:tab?", name: "user", component: () => import("./pages/users/UserPage.vue"), props: true, meta: { title: words.nav.users } },
  { path: "/access", name: "access", component: () => import("./pages/access/AccessPage.vue"), meta: { title: words.nav.access } },
  { path: "/events", name: "events", component: () => import("./pages/events/EventsPage.vue"), meta: { title: words.nav.events } },
  { path: "/audit", name: "audit", component: () => import("./pages/audit/AuditPage.vue"), meta: { title: words.nav.audit } },
  { path: "/support", name: "support", component: () => import("./pages/support/SupportPage.vue"), meta: { title: words.nav.support } },
  { path: "/vms", name: "vms", component: () => import("./pages/vms/MachineList.vue"), meta: { title: words.nav.virtualMachines } },
  { path: "/vms/create", name: "vm-create", component: () => import("./pages/vms/MachineCreate.vue"), meta: { title: words.nav.virtualMachines } },
  { path: "/vms/:namespace/:name/console/:screen(vnc|serial)", name: "vm-console", component: () => import("./pages/vms/MachineConsole.vue"), props: true, meta: { title: words.nav.virtualMachines, bare: true } },
  { path: "/vms/:namespace/:name/:tab?", name: "vm", component: () => import("./pages/vms/MachinePage.vue"), props: true, meta: { title: words.nav.virtualMachines } },
  { path: "/images", name: "images", component: () => import("./pages/images/ImageList.vue"), meta: { title: words.nav.images } },
  // Disks, networks and what machines are made with.
  { path: "/volumes", name: "volumes", component: () => import("./pages/volumes/VolumeList.vue"), meta: { title: words.nav.volumes } },
  { path: "/volumes/:namespace/:name/:tab?", name: "volume", component: () => import("./pages/volumes/VolumePage.vue"), props: true, meta: { title: words.nav.volumes } },
  { path: "/snapshots/:tab?", name: "snapshots", component: () => import("./pages/snapshots/SnapshotList.vue"), props: true, meta: { title: words.nav.snapshots } },
  { path: "/networks/:tab?", name: "networks", component: () => import("./pages/networks/NetworkList.vue"), props: true, meta: { title: words.nav.networks } },
  { path: "/keys", name: "keys", component: () => import("./pages/keys/KeyList.vue"), meta: { title: words.nav.keys } },
  { path: "/templates", name: "templates", component: () => import("./pages/templates/TemplateList.vue"), meta: { title: words.nav.templates } },
  { path: "/templates/:namespace/:name/:tab?", name: "template", component: () => import("./pages/templates/TemplatePage.vue"), props: true, meta: { title: words.nav.templates } },
  { path: "/cloud-configs", name: "cloud-configs", component: () => import("./pages/cloud-configs/CloudConfigList.vue"), meta: { title: words.nav.cloudConfigs } },
  { path: "/:rest(.*)*", name: "nowhere", component: () => import("./pages/NowherePage.vue"), meta: { title: words.errors.notFound } },
];

export const router = createRouter({ history: createWebHistory("/dashboard/"), routes });

router.beforeEach((to) => {
  if (!isSignedIn.value) return to.meta.open ? true : { name: "sign-in", query: to.fullPath === "/" ? {} : { to: to.fullPath } };
  if (person.value?.mustChangePassword && to.name !== "password") return { name: "password", query: { to: to.fullPath } };
  if (to.meta.open) return { name: "overview" };
  return true;
});

router.afterEach((to) => {
  const name = typeof to.params.name === "string" ? `${to.params.name} · ` : "";
  document.title = `${name}${to.meta.title ?? ""} · ${words.name}`;
});

/** Where to go on after signing in: a place of ours, whatever the address says. */
export function goOnTo(to: unknown): string {
  return typeof to === "string" && to.startsWith("/") && !to.startsWith("//") ? to : "/";
}
