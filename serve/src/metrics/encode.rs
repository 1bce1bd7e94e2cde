//! Encoding of metric families as text, by `prometheus-client`.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::families::{Family, Kind, Labels};
use super::name::Number;
use super::prometheus::from_openmetrics;

/// A text exposition format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format 0.0.4, which node_exporter's textfile collector takes.
    Prometheus,
    /// OpenMetrics 1.0, with units and an end marker.
    OpenMetrics,
}

impl Format {
    /// Returns the format's content type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Encodes the families as text.
pub(super) fn text(families: Vec<Family>, format: Format) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Families(families)));
    let mut text = String::new();
    // A string takes all that is written.
    let _ = encode(&mut text, &registry);
    match format {
        Format::OpenMetrics => text,
        Format::Prometheus => from_openmetrics(&text),
    }
}

#[derive(Debug)]
struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.iter().try_for_each(|family| family.encode(&mut encoder))
    }
}

impl Family {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let unit = self.unit.map(|unit| Unit::Other(unit.to_owned()));
        let kind = match self.kind {
            Kind::Gauge => MetricType::Gauge,
            Kind::Counter => MetricType::Counter,
            Kind::Info => MetricType::Info,
        };
        let mut metric = encoder.encode_descriptor(&self.stem, &self.help, unit.as_ref(), kind)?;
        for (labels, number) in &self.samples {
            match (self.kind, labels.is_empty()) {
                (Kind::Info, _) => metric.encode_info(labels)?,
                (_, true) => sample(&mut metric, self.kind, *number)?,
                (_, false) => sample(&mut labelled(&mut metric, labels)?, self.kind, *number)?,
            }
        }
        Ok(())
    }
}

fn labelled<'a>(metric: &'a mut MetricEncoder<'_>, labels: &'a Labels) -> Result<MetricEncoder<'a>, fmt::Error> {
    metric.encode_family(labels)
}

fn sample(metric: &mut MetricEncoder<'_>, kind: Kind, number: Number) -> Result<(), fmt::Error> {
    match (kind, number) {
        (Kind::Counter, Number::Unsigned(number)) => metric.encode_counter::<NoLabelSet, _, f64>(&number, None),
        (Kind::Counter, Number::Signed(number)) => {
            metric.encode_counter::<NoLabelSet, _, f64>(&(number as f64), None)
        }
        (Kind::Counter, Number::Real(number)) => metric.encode_counter::<NoLabelSet, _, f64>(&number, None),
        (_, Number::Unsigned(number)) => match i64::try_from(number) {
            Ok(number) => metric.encode_gauge(&number),
            Err(_) => metric.encode_gauge(&(number as f64)),
        },
        (_, Number::Signed(number)) => metric.encode_gauge(&number),
        (_, Number::Real(number)) => metric.encode_gauge(&number),
    }
}
