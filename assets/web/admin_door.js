// Ways into the Admin tab beside the password: the OpenID provider, and out of a frame, whose cookies browsers withhold.
import { base, say } from "./page.js";

export function showWays(part) {
  const framed = window.self !== window.top;
  const signIn = part("sign-in"), { provider } = signIn.dataset;
  signIn.hidden = !provider;
  signIn.textContent = say("admin.page.sign_in", { provider });
  signIn.href = new URL("admin/oidc/login", base);
  signIn.target = framed ? "_blank" : "_self";
  part("framed").hidden = !framed;
  part("own-tab").href = new URL("#admin", base);
}
