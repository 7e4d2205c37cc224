"""Reads traces with Perfetto's own schema (the package `perfetto` of PyPI): every field must be known, and what is said must fit together.

usage: read_perfetto.py FILE EVENTS    EVENTS: how many scheduler switches the trace has
"""

import collections
import sys

from google.protobuf import unknown_fields
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema


def unknown(message):
    count = len(unknown_fields.UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.message_type:
            parts = [value] if hasattr(value, "ListFields") else list(value)
            count += sum(unknown(part) for part in parts)
    return count


def main():
    trace = schema.Trace()
    with open(sys.argv[1], "rb") as file:
        trace.ParseFromString(file.read())
    tracks, begun, flows, ended, switches = {}, collections.Counter(), set(), set(), 0
    for packet in trace.packet:
        assert unknown(packet) == 0, f"fields that the schema does not know: {packet}"
        assert packet.WhichOneof("data"), packet
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert not track.parent_uuid or track.parent_uuid in tracks, f"below a track that does not exist: {track}"
            tracks[track.uuid] = track
        if packet.HasField("ftrace_events"):
            times = [event.timestamp for event in packet.ftrace_events.event]
            assert times == sorted(times), "events of a CPU go back in time"
            switches += sum(event.HasField("sched_switch") for event in packet.ftrace_events.event)
        if packet.HasField("track_event"):
            event = packet.track_event
            assert event.track_uuid in tracks, f"on a track that was not described: {event}"
            if event.type == schema.TrackEvent.TYPE_SLICE_BEGIN:
                begun[event.track_uuid] += 1
            if event.type == schema.TrackEvent.TYPE_SLICE_END:
                begun[event.track_uuid] -= 1
                assert begun[event.track_uuid] >= 0, f"ends what has not begun: {event}"
            flows.update(event.flow_ids)
            for flow in event.terminating_flow_ids:
                assert flow in flows, f"a flow ends that has not begun: {event}"
                ended.add(flow)
    assert switches == int(sys.argv[2]), f"{switches} switches"
    print(f"{len(trace.packet)} packets, {len(tracks)} tracks, {switches} switches, {len(ended)} flows")


main()
