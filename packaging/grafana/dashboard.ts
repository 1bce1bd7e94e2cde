// Makes the Grafana dashboard of ksmith: `make dashboard` writes what this prints to ksmith.json. The SDK's types check each panel.

import type { Builder, Dataquery } from "@grafana/grafana-foundation-sdk/cog";
import { BigValueColorMode, BigValueGraphMode, LegendDisplayMode, LegendPlacement, VisibilityMode, TooltipDisplayMode, GraphDrawStyle } from "@grafana/grafana-foundation-sdk/common";
import { VizLegendOptionsBuilder, VizTooltipOptionsBuilder } from "@grafana/grafana-foundation-sdk/common";
import {
  AnnotationQueryBuilder, DashboardBuilder, DashboardCursorSync, DashboardLinkBuilder, DatasourceVariableBuilder, QueryVariableBuilder, RowBuilder, ThresholdsConfigBuilder,
  ThresholdsMode, VariableRefresh, VariableSort, DashboardLinkType,
} from "@grafana/grafana-foundation-sdk/dashboard";
import { DataqueryBuilder } from "@grafana/grafana-foundation-sdk/prometheus";
import { PanelBuilder as Stat } from "@grafana/grafana-foundation-sdk/stat";
import { PanelBuilder as StateTimeline } from "@grafana/grafana-foundation-sdk/statetimeline";
import { PanelBuilder as TimeSeries } from "@grafana/grafana-foundation-sdk/timeseries";

const datasource = { type: "prometheus", uid: "${datasource}" };
const HOST = `instance=~"$host"`;
const GUEST = `${HOST}, guest=~"$guest"`;
/** Guests that a panel shows at most. */
const TOP = 10;

let queries = 0;

/** One query. `legend` names its lines. */
function query(expr: string, legend: string): Builder<Dataquery> {
  queries += 1;
  return new DataqueryBuilder().datasource(datasource).expr(expr).legendFormat(legend).refId(`Q${queries}`).range();
}

/** Steps of colour: green below the first limit. */
function steps(...limits: [number, string][]): ThresholdsConfigBuilder {
  const rest = limits.map(([value, color]) => ({ value, color }));
  return new ThresholdsConfigBuilder().mode(ThresholdsMode.Absolute).steps([{ value: null, color: "green" }, ...rest]);
}

/** Red below 0. */
function redBelowZero(): ThresholdsConfigBuilder {
  return new ThresholdsConfigBuilder().mode(ThresholdsMode.Absolute).steps([{ value: null, color: "red" }, { value: 0, color: "green" }]);
}

function stat(title: string, description: string, unit: string, expr: string, thresholds: ThresholdsConfigBuilder): Stat {
  return new Stat().title(title).description(description).datasource(datasource).unit(unit).height(4).span(4)
    .graphMode(BigValueGraphMode.Area).colorMode(BigValueColorMode.Value).thresholds(thresholds).withTarget(query(expr, "{{instance}}"));
}

function lines(title: string, description: string, unit: string, width = 12): TimeSeries {
  return new TimeSeries().title(title).description(description).datasource(datasource).unit(unit).height(8).span(width)
    .fillOpacity(8).lineWidth(1).showPoints(VisibilityMode.Never).drawStyle(GraphDrawStyle.Line)
    .legend(new VizLegendOptionsBuilder().displayMode(LegendDisplayMode.List).placement(LegendPlacement.Bottom).showLegend(true))
    .tooltip(new VizTooltipOptionsBuilder().mode(TooltipDisplayMode.Multi));
}

function timeline(title: string, description: string, expr: string, legend: string): StateTimeline {
  return new StateTimeline().title(title).description(description).datasource(datasource).height(8).span(12)
    .showValue(VisibilityMode.Never).mergeValues(true).thresholds(steps()).withTarget(query(expr, legend));
}

const dashboard = new DashboardBuilder("ksmith")
  .uid("ksmith").description("What memory merging (KSM) saves and costs on each host, and what its controller does.")
  .tags(["ksmith", "ksm", "memory"]).refresh("30s").time({ from: "now-6h", to: "now" }).timezone("browser").readonly()
  .tooltip(DashboardCursorSync.Crosshair)
  .link(new DashboardLinkBuilder("Runbooks").type(DashboardLinkType.Link).url("https://github.com/ksmith/ksmith/tree/main/docs/how-to/runbooks").targetBlank(true))
  .withVariable(new DatasourceVariableBuilder("datasource").label("Prometheus").type("prometheus"))
  .withVariable(new QueryVariableBuilder("host").label("Host").datasource(datasource).query("label_values(ksmith_up, instance)")
    .refresh(VariableRefresh.OnTimeRangeChanged).sort(VariableSort.AlphabeticalAsc).multi(true).includeAll(true).allValue(".*"))
  .withVariable(new QueryVariableBuilder("guest").label("Guest").datasource(datasource).query(`label_values(ksmith_guest_saved_bytes{${HOST}}, guest)`)
    .refresh(VariableRefresh.OnTimeRangeChanged).sort(VariableSort.AlphabeticalAsc).multi(true).includeAll(true).allValue(".*"))

  .withRow(new RowBuilder("Now"))
  .withPanel(stat("Saved", "Memory that is not needed because pages are merged.", "bytes", `sum(ksmith_saved_bytes{${HOST}})`, steps()))
  .withPanel(stat("Profit", "Memory saved less KSM's metadata.", "bytes", `sum(ksmith_profit_bytes{${HOST}})`, redBelowZero()))
  .withPanel(stat("Exposure of headroom", "Part of the headroom that would be needed if every merged page were written to; the worst host.",
    "percentunit", `max(ksmith_exposure_bytes{${HOST}} / ksmith_headroom_bytes{${HOST}})`, steps([0.8, "yellow"], [1, "red"])))
  .withPanel(stat("ksmd's CPU", "CPU time of ksmd on all hosts, in CPUs.", "percentunit", `sum(ksmith_ksmd_cpu_ratio{${HOST}})`, steps()))
  .withPanel(stat("Hosts without a daemon", "Hosts where `ksmith serve` answers and the daemon does not.", "short",
    `count(ksmith_up{${HOST}}) - sum(ksmith_up{${HOST}})`, steps([1, "red"])))
  .withPanel(stat("Guests", "Guests on all hosts.", "short", `sum(ksmith_guests{${HOST}})`, steps()))

  .annotation(new AnnotationQueryBuilder().name("Decisions").datasource(datasource).enable(true).iconColor("purple")
    .expr(`ksmith_policy_info{${HOST}} unless ksmith_policy_info{${HOST}} offset 1m`).step("1m")
    .titleFormat("{{policy}}: {{state}}").textFormat("{{instance}}").tagKeys("instance"))

  .withRow(new RowBuilder("Host"))
  .withPanel(lines("Memory of the host", "Memory that is used, that would be used if nothing were merged, and that there is.", "bytes").min(0)
    .withTarget(query(`ksmith_host_memory_bytes{${HOST}} - ksmith_host_available_bytes{${HOST}}`, "{{instance}} used"))
    .withTarget(query(`ksmith_host_memory_bytes{${HOST}} - ksmith_host_available_bytes{${HOST}} + ksmith_saved_bytes{${HOST}}`, "{{instance}} without merging"))
    .withTarget(query(`ksmith_host_memory_bytes{${HOST}}`, "{{instance}} in all")))
  .withPanel(lines("Memory pressure", "Part of the last ten seconds in which some work waited for memory.", "percentunit").min(0)
    .withTarget(query(`ksmith_memory_pressure_ratio{${HOST}}`, "{{instance}}")))

  .withRow(new RowBuilder("Saved and spent"))
  .withPanel(lines("Saved and profit", "What merging saves, and what is left after KSM's metadata.", "bytes")
    .withTarget(query(`ksmith_saved_bytes{${HOST}}`, "{{instance}} saved")).withTarget(query(`ksmith_profit_bytes{${HOST}}`, "{{instance}} profit")))
  .withPanel(lines("Exposure against headroom", "Memory that merged pages would need if they diverged, and what there is for it.", "bytes").min(0)
    .withTarget(query(`ksmith_exposure_bytes{${HOST}}`, "{{instance}} exposure")).withTarget(query(`ksmith_headroom_bytes{${HOST}}`, "{{instance}} headroom")))
  .withPanel(lines("ksmd's CPU and its limit", "In parts of one CPU; ksmd is a single thread. Beside it, the most that splits of huge pages cost guests.", "percentunit").min(0)
    .withTarget(query(`ksmith_ksmd_cpu_ratio{${HOST}}`, "{{instance}} ksmd")).withTarget(query(`ksmith_limit_cpu_ratio{${HOST}}`, "{{instance}} limit"))
    .withTarget(query(`ksmith_split_cost_cpus{${HOST}}`, "{{instance}} splits")))
  .withPanel(timeline("Decisions", "The policy in charge and its state.", `ksmith_policy_info{${HOST}}`, "{{instance}} {{policy}}: {{state}}"))

  .withRow(new RowBuilder("Guests"))
  .withPanel(lines(`The ${TOP} guests that save most`, "A guest's part of what its host saves.", "bytes")
    .withTarget(query(`topk(${TOP}, ksmith_guest_saved_bytes{${GUEST}})`, "{{instance}} {{guest}}")))
  .withPanel(lines("Guests that cost most", "Guests with the least profit; below 0, metadata takes more than merging saves.", "bytes")
    .withTarget(query(`bottomk(${TOP}, ksmith_guest_profit_bytes{${GUEST}})`, "{{instance}} {{guest}}")))
  .withPanel(lines("Resident and merged", "Memory of the chosen guests, and how much of it is merged, in huge pages, and split by merging.", "bytes").min(0)
    .withTarget(query(`sum by (instance) (ksmith_guest_rss_bytes{${GUEST}})`, "{{instance}} resident"))
    .withTarget(query(`sum by (instance) (ksmith_guest_merged_bytes{${GUEST}})`, "{{instance}} merged"))
    .withTarget(query(`sum by (instance) (ksmith_guest_huge_bytes{${GUEST}})`, "{{instance}} huge"))
    .withTarget(query(`sum by (instance) (ksmith_guest_split_bytes{${GUEST}})`, "{{instance}} split")))
  .withPanel(lines("Trust domains", "What each domain saves.", "bytes").min(0)
    .withTarget(query(`ksmith_domain_saved_bytes{${HOST}}`, "{{instance}} {{domain}}")))

  .withRow(new RowBuilder("Balance"))
  .withPanel(lines("Pool", "Memory of the pool that can be had without swapping, and what was taken from guests.", "bytes").min(0)
    .withTarget(query(`ksmith_pool_available_bytes{${HOST}}`, "{{instance}} available"))
    .withTarget(query(`ksmith_balance_taken_bytes{${HOST}}`, "{{instance}} taken")))
  .withPanel(lines("Given of the whole", "Memory that each guest has now, of what it was started with.", "percentunit").min(0).max(1)
    .withTarget(query(`ksmith_balanced_guest_given_bytes{${GUEST}} / ksmith_balanced_guest_whole_bytes{${GUEST}}`, "{{instance}} {{guest}}")))

  .withRow(new RowBuilder("Health"))
  .withPanel(timeline("Daemon", "1 where the daemon answers.", `ksmith_up{${HOST}}`, "{{instance}}"))
  .withPanel(timeline("Sources", "1 where a source of figures can be read.", `ksmith_source_healthy{${HOST}}`, "{{instance}} {{source}}"))
  .withPanel(lines("The daemon's CPU", "CPU time that the daemon itself uses.", "percentunit").min(0)
    .withTarget(query(`rate(ksmith_controller_cpu_seconds_total{${HOST}}[$__rate_interval])`, "{{instance}}")))
  .withPanel(lines("The daemon's memory", "Resident memory of the daemon.", "bytes").min(0)
    .withTarget(query(`ksmith_controller_rss_bytes{${HOST}}`, "{{instance}}")));

console.log(JSON.stringify(dashboard.build(), null, 2));
