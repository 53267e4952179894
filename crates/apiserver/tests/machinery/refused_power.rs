//! What a start or stop leaves behind that could not be written in the end.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::json;
use sheaf_apiserver::machines::agents::NoAgents;
use sheaf_store::{
    Entry, Page, Range, Revision, Store, StoreError, Transaction, Watch, Write,
    embedded::{self, Embedded},
};

use crate::house::House;

/// A store that writes no VirtualMachine while it is told not to.
#[derive(Debug)]
struct Balking {
    inner: Embedded,
    balks: AtomicBool,
}

#[async_trait]
impl Store for Balking {
    async fn revision(&self) -> Result<Revision, StoreError> {
        self.inner.revision().await
    }
    async fn compacted(&self) -> Result<Revision, StoreError> {
        self.inner.compacted().await
    }
    async fn get(&self, key: &Bytes) -> Result<Option<Entry>, StoreError> {
        self.inner.get(key).await
    }
    async fn range(&self, range: Range) -> Result<Page, StoreError> {
        self.inner.range(range).await
    }
    async fn commit(&self, transaction: Transaction) -> Result<Revision, StoreError> {
        let of_machine = |write: &Write| match write {
            Write::Put { key, .. } | Write::Delete { key } => {
                String::from_utf8_lossy(key).contains("virtualmachines/")
            }
        };
        if self.balks.load(Ordering::Relaxed) && transaction.writes.iter().any(of_machine) {
            return Err(StoreError::Invalid { reason: "not now".into() });
        }
        self.inner.commit(transaction).await
    }
    async fn watch(&self, prefix: Bytes, after: Revision) -> Result<Watch, StoreError> {
        self.inner.watch(prefix, after).await
    }
    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.inner.compact(revision).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_forced_restart_that_is_refused_leaves_the_machine_its_grace() {
    let store = Arc::new(Balking { inner: embedded::in_memory().unwrap(), balks: AtomicBool::new(false) });
    let house = House::reaching_on(store.clone(), Arc::new(NoAgents)).await;
    let base = "/apis/kubevirt.io/v1/namespaces/default";
    let spec = json!({"domain": {"cpu": {"cores": 1}, "memory": {"guest": "64Mi"}, "devices": {}},
        "terminationGracePeriodSeconds": 77});
    let vm =
        json!({"metadata": {"name": "vm1"}, "spec": {"runStrategy": "Always", "template": {"spec": spec}}});
    house.post(&format!("{base}/virtualmachines"), vm).await.ok();
    let instance = format!("{base}/virtualmachineinstances/vm1");
    house
        .post(&format!("{base}/virtualmachineinstances"), json!({"metadata": {"name": "vm1"}, "spec": spec}))
        .await
        .ok();
    house
        .patch(&instance, "merge-patch", json!({"status": {"phase": "Running", "nodeName": "n1"}}))
        .await
        .ok();
    let restart = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/vm1/restart";
    let grace = async || house.get(&instance).await.ok()["spec"]["terminationGracePeriodSeconds"].clone();

    store.balks.store(true, Ordering::Relaxed);
    let refused = house.put(restart, json!({"gracePeriodSeconds": 0})).await;
    assert!(refused.code >= 400, "{:#}", refused.body);
    assert_eq!(grace().await, 77);

    store.balks.store(false, Ordering::Relaxed);
    assert_eq!(house.put(restart, json!({"gracePeriodSeconds": 0})).await.code, 202);
    assert_eq!(grace().await, 0);
}
