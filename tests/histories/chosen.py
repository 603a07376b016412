"""The histories that `make test` plays: of each kind an ordinary operation and an incident, and all about NotReady."""

from __future__ import annotations

CHOSEN: dict[str, tuple[str, ...]] = {
    "Not ready": (
        "The topics of a new application are created two minutes after it",
        "Two joined topics get more partitions, one twenty seconds after the other",
        "A source topic is missing: the client gives up, and is started again",
        "A source topic is missing, the client gives up, and nothing starts it again",
        "Joined topics have different numbers of partitions: the client gives up at once",
        "One of two joined topics gets more partitions under a running application",
        "A source topic is deleted under three instances, which are started again",
        "A source topic is deleted under an application that never committed; brokers clean its group up",
        "A tool deletes the source topic and creates it again; the application ended, and nothing starts it",
        "A tool that removes unused topics deletes a changelog",
        "The application may not create its internal topics",
        "A release names a source topic that does not exist, and the old instances are gone",
    ),
    "Restarts and deployments": (
        "Restart of the only instance",
        "Rolling restart of 6 instances that restore state for ten minutes",
        "Rolling restart of 20 static members, each away for 35 s, overlapping",
        "Deployment with another topology: the group is deleted first",
        "All instances stop, and start again after a migration of twelve minutes",
        "The only instance is up for 20 s in every 320 s",
        "A canary with a defect crashes next to six good pods",
    ),
    "One application under two ids": (
        "Green runs next to blue for two hours, and blue is stopped",
        "An application gets another topology under another id, which is declared as the successor",
        "An application gets another topology under another id, which nobody declares as the successor",
        "The successor that was declared dies together with the application that it is to take over",
        "Green overlaps blue for five minutes, and each has its prefix in its internal topics",
        "Green overlaps blue for five minutes, and both have the same internal topics",
        "Three applications with state of their own read one topic, and die one after the other",
        "Three applications without internal topics read one topic, and die one after the other",
    ),
    "Scaling": (
        "Scale out from 3 to 9 instances, one after the other",
        "An autoscaler from zero, four bursts a day: 60 s to start",
        "An autoscaler scales to zero while records wait, as it cannot read the lag",
    ),
    "Outages": (
        "Three of eight spot instances are lost at once, and replaced after four minutes",
        "The only host with all four instances is lost",
        "A certificate expires, and the instances of three applications end",
        "All instances are lost while another application reads the same topics",
        "The second outage within a week",
    ),
    "Members": (
        "A static member is away for longer than its session and comes back",
        "A long pause of one member: it is removed, and joins again under its id",
        "Members take four minutes to close their state",
        "A member is stuck in revocation, with a poll interval of an hour",
        "One bad pod of six is killed for its memory",
        "All six members come and go with the network, every four minutes",
    ),
    "Assignments": (
        "Three rebalances for reasons that are not in the log",
        "The broker makes a new assignment every thirty seconds, and nothing explains it",
    ),
    "Offsets": (
        "An application with exactly-once processing rests: its lag of 1 is the marker of a transaction",
        "A database fails over in four minutes, and all instances wait for it",
        "The topic gets a record every quarter of an hour",
        "One partition has a record that is tried again and again",
        "The threads of one of three instances hang; its heartbeats go on",
        "A transaction that nobody ends holds all partitions of the topic",
    ),
    "State": (
        "A new instance restores for an hour and a half, and reports how far it is",
        "A restore makes no progress, as reports of the instance show",
        "A restore takes three hours, and the topic keeps records for one",
    ),
    "Lag": (
        "A burst of fifteen minutes of twice what the application can process, every two hours",
        "A group that loads an archive, with an override",
        "More is produced than the application can process",
        "Offsets are reset to the beginning with Kafka's tools while the application is stopped",
        "A log is truncated, and the application goes back by hours of records while it runs",
    ),
    "Losses": (
        "Retention deletes what was processed",
        "Retention of half an hour overtakes an application whose threads hang",
        "The last thing that is written are three markers of transactions, and retention deletes all of it",
        "The last thing that is written are a transaction of 20 records that is aborted, and retention deletes all of "
        "it, of a topic that the job may not read",
    ),
    "Topics": (
        "Partitions are added to a topic with records",
        "A topic is deleted and created again under an application that does not read the new one",
        "An unclean election cuts the log of one partition to below what the application has committed",
    ),
    "Brokers": (
        "Three brokers restart one after the other, each for two minutes, while records come",
        "Rolling restart of 6 static members while the group moves between brokers whose clocks are an hour apart",
        "The only instance crashes, and the clock of its broker is an hour behind",
        "A broker is lost, and three applications that read its partitions end with it",
    ),
    "One host, habits and clocks": (
        "Three applications on one host die of different causes within ten minutes",
        "An application is restarted twice in the morning, and dies at noon while work waits",
        "An application dies at the hour at which it died the day before, and was back after four hours",
        "Three instances are scaled to zero within two minutes of the last record",
        "The clocks of America/New_York go forward, and an application that runs from 8 to 18 h there declares that",
    ),
    "By the clock": (
        "An application that runs in office hours",
        "A nightly job does not run one night",
    ),
    "Copies of tasks": (
        "Rolling restart of 3 instances with standbys, which restore 2,000,000 offsets in 20 minutes each",
        "The disk of one of three hosts is too slow: its standbys fall behind",
        "Standby replicas are configured, and the assignor finds no place for them",
    ),
    "Descriptions": (
        "The plugin is removed, and new applications start after that",
        "The plugin's store is away for ten minutes while an application starts",
        "A poisoned description: the plugin rejects it for good",
        "The plugin's store is down while one application starts",
        "The plugin's store is down while thirty applications start",
        "The plugin rejects the descriptions of thirty applications",
        "A tool pushes descriptions that nobody asked for",
        "Five groups lack their descriptions, then one more does, and one gets it",
        "A group whose description was cleaned up comes back with clients that do not send one",
    ),
    "Groups": (
        "Offline migration back to the classic protocol",
        "An application is taken out of service, and its group deleted after eight minutes",
        "A client whose ids have five megabytes",
    ),
    "The job": (
        "The job is down for two hours, with a deployment meanwhile",
        "An override that matches every group, during a rolling restart",
        "All instances are lost while the job is down",
        "The alert of an application that was lost is ignored, the application comes back, and nothing is ignored",
        "The alert of an application that was lost is ignored for a while, and the application does not come back",
        "An application is retired on purpose while records come, which somebody says once they are paged",
    ),
}
PACED = (
    "Rolling restart of 6 instances that restore state for ten minutes",
    "A source topic is missing: the client gives up, and is started again",
    "The only instance is killed for its memory after a minute each time",
    "Retention of half an hour overtakes an application whose threads hang",
    "More is produced than the application can process",
)
"""Those that it also plays at every pace."""
