//! What a node serves: store, API server, controllers and the agent, wired together.

use std::{net::IpAddr, sync::Arc};

use sheaf_agent::{
    host::HostView, metrics::MachineMetrics, stream_port::Shelf, virtual_machine_instance::Tools,
};
use sheaf_apiserver::{
    ApiConfig, ApiServer, KUBERNETES_VERSION, authorization,
    identity::{MASTERS, User, service_accounts::ServiceAccount},
    machines::agents::OverTls,
    server,
};
use sheaf_controllers::{Controllers, Settings};
use sheaf_hypervisor::Hypervisor;
use sheaf_store::{Store, embedded, etcd};
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::{
    administrator, audit, down,
    failure::Failure,
    keys, log, machines,
    node::Node,
    streams::{self, Behind},
};

/// Serves until `node.stop` is cancelled. Says that the node is ready once it answers.
pub async fn serve(node: &Node, listeners: Vec<TcpListener>) -> Result<(), Failure> {
    let layout = node.data_dir.layout();
    // The keys first: without them an existing store could not be read, and must not be touched.
    let metrics = Arc::new(MachineMetrics::new(&node.config.name));
    let of_machines = metrics.clone();
    let config = ApiConfig {
        address: node.url.trim_start_matches("https://").to_string(),
        issuer: node.url.clone(),
        ca_pem: node.certificates.authority_pem().to_string(),
        token_keys: Arc::new(keys::service_account_keys(layout, &node.world)?),
        encryption_keys: keys::encryption_keys(layout, &node.world)?,
        keep_keys: Arc::new(keys::KeyFile(layout.encryption_keys())),
        vm_cidr: node.config.vm_cidr,
        agents: Arc::new(OverTls::new(node.certificates.agent_client_config())),
        audit: audit::open(node)?,
        metric_sources: vec![Arc::new(move |text| of_machines.write(text))],
        threads: true,
    };
    let store = open_store(node).await?;
    let api = ApiServer::build(config, store, node.world.clone()).await?;
    administrator::ensure(node, &api).await?;
    let vm_cidr = machines::settled_network(own_client(&api), node.config.vm_cidr).await?;
    let tools = machines::tools(node, vm_cidr, metrics).await?;
    let hypervisor = tools.hypervisor.clone();
    let _shelter = hypervisor.shelter_node();
    let (stream_port, port) = streams::open(node, &behind_streams(&tools)).await?;

    let tasks = TaskTracker::new();
    for listener in listeners {
        let serving = server::serve(
            api.clone(),
            listener,
            node.certificates.server_config(),
            node.stop.clone().cancelled_owned(),
        );
        tasks.spawn(serving);
    }
    tasks.spawn(controllers(node, &api).run(node.stop.clone().cancelled_owned()));
    tasks.spawn(stream_port.serve(node.stop.clone().cancelled_owned()));
    tasks.spawn(run_agent(node, &api, tools, port));
    tasks.close();
    node.announce_ready();
    node.stop.cancelled().await;
    tasks.wait().await;
    api.close_audit();
    tell_what_runs_on(&hypervisor);
    Ok(())
}

/// A node that stops leaves its machines alone, and says so.
fn tell_what_runs_on(hypervisor: &Hypervisor) {
    match down::running(hypervisor) {
        Ok(running) if running.is_empty() => {}
        Ok(running) => {
            info!(machines = running.len(), "virtual machines run on; `sheaf down --stop-vms` stops them")
        }
        Err(why) => {
            warn!(error = &why as &dyn std::error::Error, "cannot tell which virtual machines run on")
        }
    }
}

/// What this host does of what the objects say, as its own node.
fn run_agent(
    node: &Node,
    api: &ApiServer,
    tools: Tools,
    stream_port: u16,
) -> impl Future<Output = ()> + use<> {
    let identity = User {
        name: authorization::node::user_name(&node.config.name),
        groups: vec!["system:nodes".into(), "system:authenticated".into()],
        ..User::default()
    };
    let client = sheaf_client::in_process(api, identity);
    let (world, stop) = (node.world.clone(), node.stop.clone());
    let (name, address) = (node.config.name.clone(), node.config.advertise.to_string());
    let allow_local_images = node.config.allow_local_images;
    let data_dir = node.config.data_dir.clone();
    let host = HostView::new(node.config.data_dir.clone());
    async move {
        let serve = async {
            let (virtualisation, abilities) = machines::examine(&data_dir).await;
            let version = format!("{KUBERNETES_VERSION}+sheaf{}", env!("CARGO_PKG_VERSION"));
            let stream_port = Some(stream_port);
            let settings = sheaf_agent::Settings {
                name,
                address,
                stream_port,
                version,
                host,
                virtualisation,
                allow_local_images,
            };
            sheaf_agent::run(client, world, settings, tools, abilities).await;
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = serve => {}
        }
    }
}

/// What consoles, screens and forwarded ports lead to: the machines that the agent runs.
fn behind_streams(tools: &Tools) -> Behind {
    let ports = tools.ports.clone();
    Behind {
        hypervisor: tools.hypervisor.clone(),
        addresses_of: Arc::new(move |id| ports.addresses_of(id).into_iter().map(IpAddr::V4).collect()),
        images: Arc::new(Shelf(tools.storage.clone())),
        soft_reboots: tools.soft_reboots.clone(),
        metrics: tools.metrics.clone(),
        bundles: tools.bundles.clone(),
    }
}

/// A client as the control plane itself.
fn own_client(api: &ApiServer) -> kube::Client {
    let identity =
        User { name: "system:sheaf:controllers".into(), groups: vec![MASTERS.into()], ..User::default() };
    sheaf_client::in_process(api, identity)
}

/// What the control plane does by itself, as a client like any other.
fn controllers(node: &Node, api: &ApiServer) -> Controllers {
    let issuer = api.clone();
    let settings = Settings {
        ca_pem: node.certificates.authority_pem().to_string(),
        legacy_token: Arc::new(move |namespace, name, uid, secret| {
            issuer.legacy_token(&ServiceAccount { namespace, name, uid }, secret)
        }),
        set_log_level: Arc::new(log::set_level),
        event_lifetime: sheaf_controllers::EVENT_LIFETIME,
    };
    sheaf_controllers::build(own_client(api), node.world.clone(), settings)
}

async fn open_store(node: &Node) -> Result<Arc<dyn Store>, Failure> {
    let layout = node.data_dir.layout();
    if let Some(endpoint) = &node.config.etcd {
        let mut config = etcd::Config::new(vec![endpoint.clone()]);
        config.mark = Some(layout.etcd_mark());
        return Ok(Arc::new(etcd::open(config).await?));
    }
    let options = embedded::Options {
        sync_delay: node.config.sync_delay,
        waits_for_room: true,
        ..embedded::Options::default()
    };
    Ok(Arc::new(embedded::open(&layout.store(), options)?))
}
