//! /proc/sys/net: settings of the network, with Linux's values. Only ping_group_range (ping.rs) can be changed.

use super::{super::made::Directory as Names, ping, Proc};
use alloc::{format, sync::Arc};

/// Names and values.
type Settings = &'static [(&'static str, &'static str)];

const CORE: Settings = &[
    ("default_qdisc", "pfifo_fast"),
    ("dev_weight", "64"),
    ("netdev_budget", "300"),
    ("netdev_max_backlog", "1000"),
    ("optmem_max", "131072"),
    ("rmem_default", "212992"),
    ("rmem_max", "212992"),
    ("somaxconn", "4096"),
    ("wmem_default", "212992"),
    ("wmem_max", "212992"),
];

const IPV4: Settings = &[
    ("icmp_echo_enable_probe", "0"),
    ("icmp_echo_ignore_all", "0"),
    ("icmp_echo_ignore_broadcasts", "1"),
    ("icmp_ignore_bogus_error_responses", "1"),
    ("icmp_msgs_burst", "50"),
    ("icmp_msgs_per_sec", "1000"),
    ("icmp_ratelimit", "1000"),
    ("icmp_ratemask", "6168"),
    ("igmp_max_memberships", "20"),
    ("igmp_max_msf", "10"),
    ("ip_autobind_reuse", "0"),
    ("ip_default_ttl", "64"),
    ("ip_dynaddr", "0"),
    ("ip_early_demux", "1"),
    ("ip_forward", "0"),
    ("ip_forward_update_priority", "1"),
    ("ip_forward_use_pmtu", "0"),
    ("ip_local_port_range", "32768\t60999"),
    ("ip_local_reserved_ports", ""),
    ("ip_no_pmtu_disc", "0"),
    ("ip_nonlocal_bind", "0"),
    ("ip_unprivileged_port_start", "1024"),
    ("tcp_abort_on_overflow", "0"),
    ("tcp_adv_win_scale", "1"),
    ("tcp_allowed_congestion_control", "reno cubic"),
    ("tcp_app_win", "31"),
    ("tcp_autocorking", "1"),
    ("tcp_available_congestion_control", "reno cubic"),
    ("tcp_base_mss", "1024"),
    ("tcp_challenge_ack_limit", "2147483647"),
    ("tcp_comp_sack_delay_ns", "1000000"),
    ("tcp_comp_sack_nr", "44"),
    ("tcp_comp_sack_slack_ns", "100000"),
    ("tcp_congestion_control", "cubic"),
    ("tcp_dsack", "1"),
    ("tcp_early_demux", "1"),
    ("tcp_early_retrans", "3"),
    ("tcp_ecn", "2"),
    ("tcp_ecn_fallback", "1"),
    ("tcp_fack", "0"),
    ("tcp_fastopen", "1"),
    ("tcp_fastopen_blackhole_timeout_sec", "0"),
    ("tcp_fin_timeout", "60"),
    ("tcp_frto", "2"),
    ("tcp_fwmark_accept", "0"),
    ("tcp_invalid_ratelimit", "500"),
    ("tcp_keepalive_intvl", "75"),
    ("tcp_keepalive_probes", "9"),
    ("tcp_keepalive_time", "7200"),
    ("tcp_l3mdev_accept", "0"),
    ("tcp_limit_output_bytes", "1048576"),
    ("tcp_max_reordering", "300"),
    ("tcp_max_syn_backlog", "128"),
    ("tcp_max_tw_buckets", "4096"),
    ("tcp_mem", "22281\t29708\t44562"),
    ("tcp_migrate_req", "0"),
    ("tcp_min_rtt_wlen", "300"),
    ("tcp_min_snd_mss", "48"),
    ("tcp_min_tso_segs", "2"),
    ("tcp_moderate_rcvbuf", "1"),
    ("tcp_mtu_probe_floor", "48"),
    ("tcp_mtu_probing", "0"),
    ("tcp_no_metrics_save", "0"),
    ("tcp_no_ssthresh_metrics_save", "1"),
    ("tcp_notsent_lowat", "4294967295"),
    ("tcp_orphan_retries", "0"),
    ("tcp_pacing_ca_ratio", "120"),
    ("tcp_pacing_ss_ratio", "200"),
    ("tcp_probe_interval", "600"),
    ("tcp_probe_threshold", "8"),
    ("tcp_recovery", "1"),
    ("tcp_reflect_tos", "0"),
    ("tcp_reordering", "3"),
    ("tcp_retrans_collapse", "1"),
    ("tcp_retries1", "3"),
    ("tcp_retries2", "15"),
    ("tcp_rfc1337", "0"),
    ("tcp_rmem", "4096\t131072\t6291456"),
    ("tcp_sack", "1"),
    ("tcp_slow_start_after_idle", "1"),
    ("tcp_stdurg", "0"),
    ("tcp_syn_retries", "6"),
    ("tcp_synack_retries", "5"),
    ("tcp_syncookies", "1"),
    ("tcp_thin_linear_timeouts", "0"),
    ("tcp_timestamps", "1"),
    ("tcp_tso_rtt_log", "9"),
    ("tcp_tso_win_divisor", "3"),
    ("tcp_tw_reuse", "2"),
    ("tcp_window_scaling", "1"),
    ("tcp_wmem", "4096\t16384\t4194304"),
    ("tcp_workaround_signed_windows", "0"),
    ("udp_early_demux", "1"),
    ("udp_l3mdev_accept", "0"),
    ("udp_mem", "44562\t59416\t89124"),
    ("udp_rmem_min", "4096"),
    ("udp_wmem_min", "4096"),
];

/// Of `lo`; what `all` and `default` have otherwise is below.
const IPV4_LO: Settings = &[
    ("accept_local", "0"),
    ("accept_redirects", "1"),
    ("accept_source_route", "1"),
    ("arp_accept", "0"),
    ("arp_announce", "0"),
    ("arp_evict_nocarrier", "1"),
    ("arp_filter", "0"),
    ("arp_ignore", "0"),
    ("arp_notify", "0"),
    ("bc_forwarding", "0"),
    ("bootp_relay", "0"),
    ("disable_policy", "1"),
    ("disable_xfrm", "1"),
    ("drop_gratuitous_arp", "0"),
    ("drop_unicast_in_l2_multicast", "0"),
    ("force_igmp_version", "0"),
    ("forwarding", "0"),
    ("igmpv2_unsolicited_report_interval", "10000"),
    ("igmpv3_unsolicited_report_interval", "1000"),
    ("ignore_routes_with_linkdown", "0"),
    ("log_martians", "0"),
    ("mc_forwarding", "0"),
    ("medium_id", "0"),
    ("promote_secondaries", "0"),
    ("proxy_arp", "0"),
    ("proxy_arp_pvlan", "0"),
    ("route_localnet", "0"),
    ("rp_filter", "0"),
    ("secure_redirects", "1"),
    ("send_redirects", "1"),
    ("shared_media", "1"),
    ("src_valid_mark", "0"),
    ("tag", "0"),
];

const IPV4_ALL: Settings = &[("accept_source_route", "0"), ("disable_policy", "0"), ("disable_xfrm", "0")];
const IPV4_DEFAULT: Settings = &[("disable_policy", "0"), ("disable_xfrm", "0")];

const IPV6: Settings = &[
    ("anycast_src_echo_reply", "0"),
    ("auto_flowlabels", "1"),
    ("bindv6only", "0"),
    ("flowlabel_consistency", "1"),
    ("flowlabel_reflect", "0"),
    ("flowlabel_state_ranges", "0"),
    ("idgen_delay", "1"),
    ("idgen_retries", "3"),
    ("ip_nonlocal_bind", "0"),
];

const IPV6_LO: Settings = &[
    ("accept_dad", "-1"),
    ("accept_ra", "1"),
    ("accept_ra_defrtr", "1"),
    ("accept_ra_from_local", "0"),
    ("accept_ra_min_hop_limit", "1"),
    ("accept_ra_mtu", "1"),
    ("accept_ra_pinfo", "1"),
    ("accept_ra_rt_info_max_plen", "0"),
    ("accept_ra_rt_info_min_plen", "0"),
    ("accept_ra_rtr_pref", "1"),
    ("accept_redirects", "1"),
    ("accept_source_route", "0"),
    ("accept_untracked_na", "0"),
    ("addr_gen_mode", "0"),
    ("autoconf", "1"),
    ("dad_transmits", "1"),
    ("disable_ipv6", "0"),
    ("disable_policy", "0"),
    ("drop_unicast_in_l2_multicast", "0"),
    ("drop_unsolicited_na", "0"),
    ("enhanced_dad", "1"),
    ("force_mld_version", "0"),
    ("force_tllao", "0"),
    ("forwarding", "0"),
    ("hop_limit", "64"),
    ("ignore_routes_with_linkdown", "0"),
    ("ioam6_enabled", "0"),
    ("ioam6_id", "65535"),
    ("ioam6_id_wide", "4294967295"),
    ("keep_addr_on_down", "0"),
    ("max_addresses", "16"),
    ("max_desync_factor", "600"),
    ("mc_forwarding", "0"),
    ("mldv1_unsolicited_report_interval", "10000"),
    ("mldv2_unsolicited_report_interval", "1000"),
    ("mtu", "65536"),
    ("ndisc_evict_nocarrier", "1"),
    ("ndisc_notify", "0"),
    ("ndisc_tclass", "0"),
    ("optimistic_dad", "0"),
    ("proxy_ndp", "0"),
    ("ra_defrtr_metric", "1024"),
    ("regen_max_retry", "3"),
    ("router_probe_interval", "60"),
    ("router_solicitation_delay", "1"),
    ("router_solicitation_interval", "4"),
    ("router_solicitation_max_interval", "3600"),
    ("router_solicitations", "-1"),
    ("rpl_seg_enabled", "0"),
    ("seg6_enabled", "0"),
    ("seg6_require_hmac", "0"),
    ("suppress_frag_ndisc", "1"),
    ("temp_prefered_lft", "86400"),
    ("temp_valid_lft", "604800"),
    ("use_oif_addrs_only", "0"),
    ("use_optimistic", "0"),
    ("use_tempaddr", "-1"),
];

const IPV6_ALL: Settings = &[("accept_dad", "0"), ("mtu", "1280"), ("use_tempaddr", "0")];
const IPV6_DEFAULT: Settings = &[("accept_dad", "1"), ("mtu", "1280"), ("use_tempaddr", "0")];

pub(super) fn fill(proc: &Arc<Proc>, names: Names) -> Names {
    names
        .directory("core", |names| settings(names, CORE, &[]))
        .directory("ipv4", |names| {
            settings(names, IPV4, &[])
                .with("ping_group_range", ping::groups(proc))
                .directory("conf", |names| interfaces(names, IPV4_LO, IPV4_ALL, IPV4_DEFAULT))
        })
        .directory("ipv6", |names| {
            settings(names, IPV6, &[]).directory("conf", |names| interfaces(names, IPV6_LO, IPV6_ALL, IPV6_DEFAULT))
        })
        .directory("unix", |names| names.constant("max_dgram_qlen", "10\n"))
}

/// `settings`, but for those that are among `otherwise`.
fn settings(names: Names, settings: Settings, otherwise: Settings) -> Names {
    settings.iter().fold(names, |names, (name, value)| {
        let value = otherwise.iter().find(|(other, _)| other == name).map_or(value, |(_, value)| value);
        names.constant(name, format!("{value}\n"))
    })
}

fn interfaces(names: Names, lo: Settings, all: Settings, default: Settings) -> Names {
    names
        .directory("all", |names| settings(names, lo, all))
        .directory("default", |names| settings(names, lo, default))
        .directory("lo", |names| settings(names, lo, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_otherwise_is_a_setting() {
        for (settings, otherwise) in
            [(IPV4_LO, IPV4_ALL), (IPV4_LO, IPV4_DEFAULT), (IPV6_LO, IPV6_ALL), (IPV6_LO, IPV6_DEFAULT)]
        {
            for (name, value) in otherwise {
                assert!(settings.iter().any(|(known, usual)| known == name && usual != value), "{name}");
            }
        }
    }
}
