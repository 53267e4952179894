//! Networks and their addresses: what may not go while machines are on it.

use serde_json::Value;
use sheaf_resources::{
    field_error::{FieldError, FieldPath},
    kinds::{
        cluster_network::{MANAGEMENT, MTU_ANNOTATION},
        ip_pool::{EXCLUDED, RESERVED},
        network_attachment_definition::{self, CLUSTER_NETWORK_LABEL},
        vlan_config::DEFAULT_MTU,
    },
};

use crate::{
    ApiServer,
    cache::place,
    rest::{Call, options::Freshness},
    status::ApiError,
};

impl ApiServer {
    /// Frames on a network are as large as on its cluster network.
    pub(super) fn admit_definition(&self, new: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
        let config = new["spec"]["config"].as_str().unwrap_or_default();
        let Ok(attachment) = network_attachment_definition::parse(config) else {
            // Validation says what is wrong with it.
            return Ok(());
        };
        let networks = self.all("network.harvesterhci.io", "clusternetworks");
        let of_it = networks.iter().find(|network| network["metadata"]["name"] == attachment.cluster_network);
        let said = of_it.and_then(|network| network["metadata"]["annotations"][MTU_ANNOTATION].as_str());
        let mtu = said.and_then(|said| said.parse().ok()).filter(|mtu| *mtu != 0);
        network_attachment_definition::complete(new, old, mtu.unwrap_or(u64::from(DEFAULT_MTU))).map_err(
            |why| {
                let at = FieldPath::new("spec").child("config");
                let name = new["metadata"]["name"].as_str().unwrap_or_default();
                let config = new["spec"]["config"].as_str().unwrap_or_default();
                let error = FieldError::invalid(&at, config, why);
                ApiError::invalid("k8s.cni.cncf.io", "NetworkAttachmentDefinition", name, &[error])
            },
        )
    }

    pub(super) async fn admit_definition_deletion(
        &self,
        call: &Call<'_>,
        name: &str,
    ) -> Result<(), ApiError> {
        if self.is_being_emptied(call) {
            return Ok(());
        }
        self.reach(Freshness::Latest).await?;
        let network = place(&call.request.namespace, name);
        let users =
            self.machines.that(&self.cache, "", |used| !used.going && used.networks.contains(&network));
        if users.is_empty() {
            return Ok(());
        }
        Err(ApiError::unprocessable(format!(
            "could not delete nad {network} because it's used by VM(s) {} which must be taken off it at first",
            users.join(", ")
        )))
    }

    pub(super) async fn admit_cluster_network_deletion(
        &self,
        call: &Call<'_>,
        name: &str,
    ) -> Result<(), ApiError> {
        if name == MANAGEMENT {
            let why = format!("could not delete cluster network {name} because every node is on it");
            return Err(ApiError::refused(call.named(), name, why));
        }
        self.reach(Freshness::Latest).await?;
        let configs = self.uplinks_of(name);
        if !configs.is_empty() {
            return Err(ApiError::unprocessable(format!(
                "could not delete cluster network {name} because vlanconfig(s) {} under this clusternetwork are still \
                 existing",
                configs.join(", ")
            )));
        }
        let definitions = self.all("k8s.cni.cncf.io", "network-attachment-definitions");
        let on_it = definitions.iter().filter(|nad| nad["metadata"]["labels"][CLUSTER_NETWORK_LABEL] == name);
        let users: Vec<String> = on_it
            .map(|nad| {
                let text = |field: &str| nad["metadata"][field].as_str().unwrap_or_default();
                place(text("namespace"), text("name"))
            })
            .collect();
        if users.is_empty() {
            return Ok(());
        }
        Err(ApiError::unprocessable(format!(
            "could not delete cluster network {name} because nads {} are still attached",
            users.join(", ")
        )))
    }

    /// An address that is lent would be lent again by the next pool of that network.
    pub(super) fn admit_pool_deletion(&self, call: &Call<'_>, pool: &Value) -> Result<(), ApiError> {
        if self.is_being_emptied(call) {
            return Ok(());
        }
        let allocated = pool["status"]["ipv4"]["allocated"].as_object();
        let lent = |holder: &Value| holder != EXCLUDED && holder != RESERVED;
        let mut lent = allocated.into_iter().flatten().filter(|(_, holder)| lent(holder));
        let Some((address, holder)) = lent.next() else { return Ok(()) };
        let name = pool["metadata"]["name"].as_str().unwrap_or_default();
        let holder = holder.as_str().unwrap_or_default();
        let others = match lent.count() {
            0 => String::new(),
            more => format!(" and {more} more are in use"),
        };
        Err(ApiError::unprocessable(format!(
            "could not delete IPPool {name} because address {address} is used by {holder}{others}"
        )))
    }
}
