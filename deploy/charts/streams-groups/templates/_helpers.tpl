{{- define "streams-groups.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- (contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name)) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "streams-groups.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "streams-groups.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "streams-groups.selector" . }}
{{- end -}}

{{- define "streams-groups.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}

{{- define "streams-groups.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "streams-groups.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{- define "streams-groups.claim" -}}
{{ default (include "streams-groups.fullname" .) .Values.warehouse.persistence.existingClaim }}
{{- end -}}

{{- define "streams-groups.secret" -}}
{{- if .Values.secrets.existingSecret -}}
{{ .Values.secrets.existingSecret }}
{{- else if .Values.secrets.files -}}
{{ include "streams-groups.fullname" . }}
{{- end -}}
{{- end -}}

{{- /* The job's configuration file: `config` of the values, merged over the keys that the chart derives. */ -}}
{{- define "streams-groups.config" -}}
{{- $derived := dict "metrics" (dict "listen" (printf "0.0.0.0:%d" (int .Values.metrics.port))) -}}
{{- if .Values.warehouse.persistence.enabled -}}
{{- $_ := set $derived "warehouse" .Values.warehouse.path -}}
{{- end -}}
{{- if hasKey .Values.secrets.files "client.properties" -}}
{{- $_ := set $derived "command_config" "/run/secrets/streams-groups/client.properties" -}}
{{- end -}}
{{- $spark := ternary "streams-groups.executors" "streams-groups.local" .Values.executors.enabled -}}
{{- $_ := set $derived "conf" (include $spark . | fromYaml) -}}
{{- mustMergeOverwrite $derived (deepCopy .Values.config) | toYaml -}}
{{- end -}}

{{- define "streams-groups.local" -}}
spark.master: local[{{ .Values.cores }}]
spark.sql.shuffle.partitions: {{ .Values.cores | quote }}
{{- end -}}

{{- /* Spark settings for executors in pods. The Deployment adds the address of the driver, which only its pod knows. */ -}}
{{- define "streams-groups.executors" -}}
{{- $executors := .Values.executors -}}
spark.master: k8s://https://kubernetes.default.svc
spark.kubernetes.namespace: {{ .Release.Namespace }}
spark.kubernetes.container.image: {{ include "streams-groups.image" . }}
spark.kubernetes.container.image.pullPolicy: {{ .Values.image.pullPolicy }}
spark.kubernetes.executor.podTemplateFile: /etc/streams-groups/executor.yaml
spark.executor.instances: {{ $executors.instances | quote }}
spark.executor.cores: {{ $executors.cores | quote }}
spark.executor.memory: {{ $executors.memory | quote }}
spark.sql.shuffle.partitions: {{ mul $executors.instances $executors.cores | quote }}
spark.driver.port: "7078"
spark.driver.blockManager.port: "7079"
spark.driver.bindAddress: 0.0.0.0
{{- if .Values.warehouse.persistence.enabled }}
spark.kubernetes.executor.volumes.persistentVolumeClaim.warehouse.options.claimName: {{ include "streams-groups.claim" . }}
spark.kubernetes.executor.volumes.persistentVolumeClaim.warehouse.mount.path: {{ .Values.warehouse.path }}
{{- end }}
{{- with include "streams-groups.secret" . }}
spark.kubernetes.executor.secrets.{{ . }}: /run/secrets/streams-groups
{{- end }}
{{- end -}}

{{- define "streams-groups.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: config, mountPath: /etc/streams-groups, readOnly: true}
{{- if include "streams-groups.secret" . }}
- {name: secrets, mountPath: /run/secrets/streams-groups, readOnly: true}
{{- end }}
{{- if .Values.warehouse.persistence.enabled }}
- {name: warehouse, mountPath: {{ .Values.warehouse.path }}}
{{- end }}
{{- end -}}
