//! An operator: a kind of its own, a `Controller` that keeps a ConfigMap for each object of it, and the finalizer
//! helper, which has something cleaned up before an object may go.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::{
    api::core::v1::ConfigMap, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams,
    },
    runtime::{
        conditions,
        controller::{Action, Controller},
        finalizer::{self, finalizer},
        wait::await_condition,
        watcher,
    },
};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Stage, persist, put, soon};
use crate::server::Server;

const FINALIZER: &str = "kube-rs.test/unplug";
const LAMPS: [&str; 6] = ["desk", "floor", "hall", "porch", "stair", "wall"];
/// What went, noted by whoever cleaned up behind it.
const LEDGER: &str = "unplugged";

/// Every lamp has its ConfigMap and its status, whatever happens to the server; a ConfigMap that is taken away comes
/// back; a lamp goes when it was cleaned up behind, once and not before.
pub async fn every_lamp_is_looked_after<S: Server + Send + 'static>(mut stage: Stage<S>) {
    let lamps = define(&stage).await;
    let maps = stage.config_maps();
    put(&maps, LEDGER, json!({}), json!({})).await;
    let running = tokio::spawn(operate(stage.client.clone(), stage.namespace.clone(), lamps.clone()));

    for name in LAMPS {
        let mut lamp = DynamicObject::new(name, &resource()).data(json!({"spec": {"colour": "white"}}));
        lamp.metadata.namespace = Some(stage.namespace.clone());
        lamps.create(&PostParams::default(), &lamp).await.unwrap();
    }
    soon("every lamp is white", async || all_are(&lamps, &maps, &LAMPS, "white").await).await;

    // Changed while the server goes and comes.
    let changing = tokio::spawn({
        let lamps = lamps.clone();
        async move {
            for colour in ["red", "green", "blue"] {
                for name in LAMPS {
                    paint(&lamps, name, colour).await;
                    sleep(Duration::from_millis(20)).await;
                }
            }
        }
    });
    sleep(Duration::from_millis(100)).await;
    stage.restart().await;
    changing.await.unwrap();
    soon("every lamp is blue", async || all_are(&lamps, &maps, &LAMPS, "blue").await).await;

    maps.delete("desk", &DeleteParams::default()).await.unwrap();
    soon("a child that was taken away comes back", async || all_are(&lamps, &maps, &LAMPS, "blue").await)
        .await;

    // Deleted, and the server is gone before anybody can have cleaned up behind all of them.
    let (going, staying) = LAMPS.split_at(3);
    for name in going {
        lamps.delete(name, &DeleteParams::default()).await.unwrap();
    }
    stage.restart().await;
    soon("what was deleted is gone", async || {
        let all = ListParams::default();
        let left = persist(|| lamps.list(&all)).await;
        let left: Vec<String> = left.iter().map(ResourceExt::name_any).collect();
        if left == staying { Ok(()) } else { Err(format!("left: {left:?}")) }
    })
    .await;
    let ledger = maps.get(LEDGER).await.unwrap().data.unwrap_or_default();
    assert_eq!(
        ledger.keys().collect::<Vec<_>>(),
        going.iter().collect::<Vec<_>>(),
        "each was cleaned up behind"
    );
    for name in going {
        let child = maps.get_opt(name).await.unwrap();
        assert!(child.is_none(), "the child of {name} went before it");
    }
    soon("those that stay are as they were", async || all_are(&lamps, &maps, staying, "blue").await).await;

    running.abort();
    let lonely = lamps.delete("hall", &DeleteParams::default()).await;
    assert!(lonely.is_err(), "what is gone is not deleted again");
    lamps.delete("wall", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_millis(500)).await;
    let waiting = lamps.get("wall").await.unwrap();
    assert!(waiting.metadata.deletion_timestamp.is_some(), "without its operator a lamp only waits");
    assert_eq!(waiting.finalizers(), [FINALIZER]);
}

fn resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("kube-rs.test", "v1", "Lamp"))
}

async fn define<S: Server + Send + 'static>(stage: &Stage<S>) -> Api<DynamicObject> {
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "lamps.kube-rs.test"},
        "spec": {
            "group": "kube-rs.test", "scope": "Namespaced", "names": {"plural": "lamps", "kind": "Lamp"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"colour": {"type": "string"}}},
                    "status": {"type": "object", "properties": {"colour": {"type": "string"}}},
                }}},
            }],
        },
    }))
    .unwrap();
    let definitions = Api::all(stage.client.clone());
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let established = conditions::is_crd_established();
    await_condition(definitions, "lamps.kube-rs.test", established).await.unwrap();
    let lamps = Api::namespaced_with(stage.client.clone(), &stage.namespace, &resource());
    // Established is a little before served.
    soon("lamps are served", async || {
        lamps.list(&ListParams::default()).await.map(drop).map_err(|why| why.to_string())
    })
    .await;
    lamps
}

async fn paint(lamps: &Api<DynamicObject>, name: &str, colour: &str) {
    let change = json!({"spec": {"colour": colour}});
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(&change));
    persist(|| lamps.patch(name, &parameters, &patch)).await;
}

/// Whether lamps, their status and their ConfigMaps agree on a colour.
async fn all_are(
    lamps: &Api<DynamicObject>,
    maps: &Api<ConfigMap>,
    names: &[&str],
    colour: &str,
) -> Result<(), String> {
    for name in names {
        let lamp = persist(|| lamps.get(name)).await;
        let map = persist(|| maps.get_opt(name)).await;
        let shown = map.as_ref().and_then(|map| map.data.as_ref()?.get("colour").cloned());
        let seen = [&lamp.data["spec"]["colour"], &lamp.data["status"]["colour"], &json!(shown)];
        if seen.iter().any(|seen| **seen != colour) || lamp.finalizers() != [FINALIZER] {
            return Err(format!("{name}: {seen:?} {:?}", lamp.finalizers()));
        }
        let owners = map.map(|map| map.owner_references().to_vec()).unwrap_or_default();
        if owners.len() != 1 || owners[0].uid != lamp.uid().unwrap() {
            return Err(format!("{name}: owned by {owners:?}"));
        }
    }
    Ok(())
}

struct Operator {
    lamps: Api<DynamicObject>,
    maps: Api<ConfigMap>,
}

type Failed = finalizer::Error<kube::Error>;

async fn operate(client: Client, namespace: String, lamps: Api<DynamicObject>) {
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let operator = Arc::new(Operator { lamps: lamps.clone(), maps: maps.clone() });
    let soon_again =
        |_: Arc<DynamicObject>, _: &Failed, _: Arc<Operator>| Action::requeue(Duration::from_millis(200));
    Controller::new_with(lamps, watcher::Config::default(), resource())
        .owns(maps, watcher::Config::default())
        .run(reconcile, soon_again, operator)
        .for_each(|_| std::future::ready(()))
        .await;
}

async fn reconcile(lamp: Arc<DynamicObject>, operator: Arc<Operator>) -> Result<Action, Failed> {
    let reconciled = finalizer(&operator.lamps, FINALIZER, lamp, |event| async {
        match event {
            finalizer::Event::Apply(lamp) => operator.light(&lamp).await,
            finalizer::Event::Cleanup(lamp) => operator.unplug(&lamp).await,
        }
    });
    reconciled.await
}

impl Operator {
    async fn light(&self, lamp: &DynamicObject) -> Result<Action, kube::Error> {
        let name = lamp.name_any();
        let colour = &lamp.data["spec"]["colour"];
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "ownerReferences": [lamp.controller_owner_ref(&resource())]},
            "data": {"colour": colour},
        });
        self.maps.patch(&name, &PatchParams::apply("operator").force(), &Patch::Apply(&map)).await?;
        let status = json!({"apiVersion": "kube-rs.test/v1", "kind": "Lamp", "status": {"colour": colour}});
        let parameters = PatchParams::apply("operator").force();
        self.lamps.patch_status(&name, &parameters, &Patch::Apply(&status)).await?;
        Ok(Action::await_change())
    }

    async fn unplug(&self, lamp: &DynamicObject) -> Result<Action, kube::Error> {
        let name = lamp.name_any();
        match self.maps.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => drop(other?),
        }
        let note: Value = json!({"data": {name: "yes"}});
        self.maps.patch(LEDGER, &PatchParams::default(), &Patch::Merge(&note)).await?;
        Ok(Action::await_change())
    }
}
