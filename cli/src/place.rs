//! Where runs and lists go: to a running defender, or to what it would keep them in.

use std::sync::Arc;

use anyhow::{Result, bail};
use clap::Args;
use phalanx_cluster::backend::{Embedded, Stores};
use phalanx_defender::store::ChartStore;

use crate::client::{Client, ServiceArgs};
use crate::connect::{self, Meeting, Shelf, Trouble};
use crate::data_folder::DataFolder;
use crate::settings::places::{Coordination, Places};
use crate::settings::reader::{Reader, text};
use crate::settings::variables::Connections;

/// Where it goes.
#[derive(Args)]
#[command(next_help_heading = "Where it goes")]
pub(crate) struct Place {
    /// To the defender that listens there, such as http://127.0.0.1:8080.
    ///
    /// Without it: to NATS and Cassandra where NATS_SERVERS is set; otherwise to the defender that runs on the data folder,
    /// and where none does, into the folder itself.
    #[arg(long, env = "PHALANX_URL", value_name = "URL")]
    url: Option<String>,

    /// The token of that defender; better in the variable than where every process can read it.
    #[arg(long, env = "API_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    token: Option<String>,

    #[command(flatten)]
    connections: Connections,
}

/// How it gets there.
pub(crate) enum Way {
    /// A defender is asked.
    Service(Client),
    /// This process does it.
    Direct(Box<Direct>),
}

/// What a defender would keep things in, open.
pub(crate) struct Direct {
    pub(crate) meeting: Meeting,
    charts: Shelf,
    pub(crate) store: Arc<dyn ChartStore>,
    pub(crate) stores: Stores,
    pub(crate) places: Places,
}

impl Place {
    /// The data folder that was named.
    pub(crate) fn folder(&self) -> Option<DataFolder> {
        text(&self.connections.data_dir).map(|folder| DataFolder::at(folder.as_ref()))
    }

    /// Whether this process will have to do the work: nothing is named that runs, and no defender says that it has the
    /// folder.
    pub(crate) fn is_left_to_us(&self) -> bool {
        let runs = self.folder().is_some_and(|folder| folder.address().is_some());
        text(&self.url).is_none() && text(&self.connections.nats_servers).is_none() && !runs
    }

    /// How to get there.
    pub(crate) async fn way(&self) -> Result<Way> {
        if text(&self.url).is_some() {
            return Ok(Way::Service(self.service().client()?));
        }
        let mut reader = Reader::default();
        let places = Places::new(&mut reader, &self.connections, "phalanx");
        let Some(places) = places.filter(|_| reader.wrong.is_empty()) else {
            bail!("{}", reader.wrong.join("; "));
        };
        let meeting = match &places.coordination {
            Coordination::Nats(_) => None,
            Coordination::Embedded(folder) => match Embedded::open(folder) {
                Ok(embedded) => Some(Meeting::Embedded(Arc::new(embedded))),
                // Somebody has the folder: a defender that says where it listens.
                Err(_) if DataFolder::at(folder).address().is_some() => {
                    return Ok(Way::Service(self.service().client()?));
                }
                Err(error) => return Err(error.into()),
            },
        };
        Ok(Way::Direct(Box::new(Direct::open(places, meeting).await?)))
    }

    fn service(&self) -> ServiceArgs {
        let data_dir = text(&self.connections.data_dir).map(Into::into);
        ServiceArgs { url: self.url.clone(), data_dir, token: self.token.clone() }
    }
}

impl Direct {
    async fn open(places: Places, meeting: Option<Meeting>) -> Result<Self> {
        let opened = match meeting {
            Some(meeting) => connect::open_charts(&places.charts).await.map(|charts| (meeting, charts)),
            None => connect::connect(&places).await,
        };
        let (meeting, charts) = opened.map_err(Trouble::into_error)?;
        let stores = Stores::open(&*meeting.backend(), &places.settings).await?;
        Ok(Self { store: charts.store(), meeting, charts, stores, places })
    }

    /// Lets go of all of it.
    pub(crate) async fn close(&self) {
        self.charts.close().await;
        self.meeting.close().await;
    }
}
