//! That a setting's condition follows what is set.

use serde_json::json;
use sheaf_testbed::kubectl::Kubectl;

use crate::scenario::Scenario;

const SETTINGS: &str = "/apis/harvesterhci.io/v1beta1/settings";

async fn condition(kubectl: &Kubectl, name: &str) -> (String, String) {
    let setting = kubectl.get(&format!("{SETTINGS}/{name}")).await.unwrap();
    let condition = &setting["status"]["conditions"][0];
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        (condition["type"].as_str(), setting["status"]["conditions"][1].is_null()),
        (Some("configured"), true)
    );
    (text("status"), text("reason"))
}

fn setting_things() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| {
            kubectl.patch(&format!("{SETTINGS}/upgrade-checker-enabled"), &json!({"value": "false"})).await;
        },
        happens: async |kubectl: &Kubectl| {
            for (name, value) in [
                ("ntp-servers", r#"{"ntpServers":["10.0.0.1"]}"#),
                ("log-level", "debug"),
                ("additional-guest-memory-overhead-ratio", "3.0"),
                ("upgrade-checker-enabled", ""),
            ] {
                kubectl.patch(&format!("{SETTINGS}/{name}"), &json!({"value": value})).await;
            }
            // As an older release would have left it.
            kubectl.patch(&format!("{SETTINGS}/overcommit-config"), &json!({"status": null})).await;
        },
        ends: async |kubectl: &Kubectl| {
            let said = |is: &str, reason: &str| (is.to_owned(), reason.to_owned());
            assert_eq!(condition(kubectl, "ntp-servers").await, said("False", "NoEffectYet"));
            assert_eq!(condition(kubectl, "log-level").await, said("True", ""));
            assert_eq!(
                condition(kubectl, "additional-guest-memory-overhead-ratio").await,
                said("True", "InPart")
            );
            assert_eq!(condition(kubectl, "upgrade-checker-enabled").await, said("Unknown", "NoEffectYet"));
            assert_eq!(condition(kubectl, "overcommit-config").await, said("True", ""));
        },
    }
}

#[test]
fn a_setting_always_says_whether_it_is_in_force() {
    setting_things().arrives_and_rests();
    setting_things().arrives_however_interrupted();
}
