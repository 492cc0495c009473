{{- define "ringkeeper.name" -}}
{{ if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}
{{- end }}

{{- define "ringkeeper.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ringkeeper.labels" -}}
{{ include "ringkeeper.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "ringkeeper.secret" -}}
{{ .Values.peerSecret.existingSecret | default (printf "%s-peer" (include "ringkeeper.name" .)) }}
{{- end }}

{{- /* Of all servers, as ZOO_SERVERS takes them. */}}
{{- define "ringkeeper.servers" -}}
{{- $name := include "ringkeeper.name" . -}}
{{- $ports := .Values.containerPorts -}}
{{- range $index := until (int .Values.replicaCount) -}}
{{ if $index }} {{ end }}server.{{ add1 $index }}={{ $name }}-{{ $index }}.{{ $name }}-servers:{{ $ports.quorum }}:3888;{{ $ports.client }}
{{- end }}
{{- end }}

{{- /* Settings without a variable of their own. */}}
{{- define "ringkeeper.config" -}}
quorumListenOnAllIPs=true admin.serverAddress=0.0.0.0 admin.serverPort={{ .Values.containerPorts.admin }}
{{- range $key, $value := .Values.extraConfig }} {{ $key }}={{ $value }}{{ end }}
{{- end }}
