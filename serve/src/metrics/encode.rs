//! Encoding of metric families as text, by `prometheus-client`.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::families::{FamilyKind, Labels, MetricFamily};
use super::name::SampleNumber;
use super::prometheus::from_openmetrics;

/// A text exposition format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsFormat {
    /// Prometheus' text format 0.0.4, which node_exporter's textfile collector takes.
    Prometheus,
    /// OpenMetrics 1.0, with units and an end marker.
    OpenMetrics,
}

impl MetricsFormat {
    /// Returns the format's content type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Encodes the families as text.
pub(super) fn text(families: Vec<MetricFamily>, format: MetricsFormat) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(FamilyCollector(families)));
    let mut text = String::new();
    // A string takes all that is written.
    let _ = encode(&mut text, &registry);
    match format {
        MetricsFormat::OpenMetrics => text,
        MetricsFormat::Prometheus => from_openmetrics(&text),
    }
}

#[derive(Debug)]
struct FamilyCollector(Vec<MetricFamily>);

impl Collector for FamilyCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.iter().try_for_each(|family| family.encode(&mut encoder))
    }
}

impl MetricFamily {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let unit = self.unit.map(|unit| Unit::Other(unit.to_owned()));
        let kind = match self.kind {
            FamilyKind::Gauge => MetricType::Gauge,
            FamilyKind::Counter => MetricType::Counter,
            FamilyKind::Info => MetricType::Info,
        };
        let mut metric = encoder.encode_descriptor(&self.stem, &self.help, unit.as_ref(), kind)?;
        for (labels, number) in &self.samples {
            match (self.kind, labels.is_empty()) {
                (FamilyKind::Info, _) => metric.encode_info(labels)?,
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

fn sample(metric: &mut MetricEncoder<'_>, kind: FamilyKind, number: SampleNumber) -> Result<(), fmt::Error> {
    match (kind, number) {
        (FamilyKind::Counter, SampleNumber::Unsigned(number)) => {
            metric.encode_counter::<NoLabelSet, _, f64>(&number, None)
        }
        (FamilyKind::Counter, SampleNumber::Signed(number)) => {
            metric.encode_counter::<NoLabelSet, _, f64>(&(number as f64), None)
        }
        (FamilyKind::Counter, SampleNumber::Real(number)) => {
            metric.encode_counter::<NoLabelSet, _, f64>(&number, None)
        }
        (_, SampleNumber::Unsigned(number)) => match i64::try_from(number) {
            Ok(number) => metric.encode_gauge(&number),
            Err(_) => metric.encode_gauge(&(number as f64)),
        },
        (_, SampleNumber::Signed(number)) => metric.encode_gauge(&number),
        (_, SampleNumber::Real(number)) => metric.encode_gauge(&number),
    }
}
